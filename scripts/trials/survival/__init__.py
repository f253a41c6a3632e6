"""What the machine must survive, as trials that `crash`, `faults` and others run at length and the tests in short.

`letters` makes mail that can be recognised again, `ledger` keeps what was acknowledged and judges what came, `client`
hands it in, `rig` runs the real MTA and the real sink; the rest are the trials.
"""
