"""Stand-in: H4's."""
def must_be_sound(module, names):
    pass
