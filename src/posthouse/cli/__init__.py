"""The command line. Each module has one group of commands; `main` puts them together."""
