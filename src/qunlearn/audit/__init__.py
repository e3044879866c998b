"""Looking further for what a network still remembers."""

from qunlearn.audit.bits import audit_bits, changed_codes, requantized

__all__ = ["audit_bits", "changed_codes", "requantized"]
