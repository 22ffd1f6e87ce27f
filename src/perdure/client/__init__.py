"""Ways to reach a server: the Service protocol, over the network or in this process."""
