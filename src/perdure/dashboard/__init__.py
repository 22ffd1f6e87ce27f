"""Pages for people, served by a server at its own address: what is there, why it waits, and what to do about it."""
