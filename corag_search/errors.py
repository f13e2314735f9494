"""The one error that means: what the user gave cannot be used."""


class InputError(ValueError):
    """A value from outside is unusable. The message is one line: the value, what is allowed, the remedy.

    The command line prints it and exits with code 2; any other exception is a fault of ours.
    """
