from hypothesis import settings

# A busy machine must not fail a test: no deadline for a single example.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
