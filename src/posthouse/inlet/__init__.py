"""Takes in messages that came back: from a mail server, one at a time, or from a mailbox."""
