"""Reads messages that came back: what became of a send, from reports, complaints and bounces in any words.

Pure: bytes and a time in, events out. Nothing that a stranger can put into a message makes it raise anything.
"""
