"""The one loop, on Lightning Fabric: devices, precision, progress, checkpoints."""
