"""Stand-in: H2's."""
class Checkpoint:
    pass
