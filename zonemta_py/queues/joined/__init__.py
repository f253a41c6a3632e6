"""How the answers of several queues become one."""
