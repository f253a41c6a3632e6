"""Commands for whoever sets the MTA up on a machine: a first configuration, and a look at all it depends on."""
