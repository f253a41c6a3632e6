"""What the MTA must hold back from doing, as trials that scripts/trials/limits runs at length and the tests in short.

`names` answers DNS questions, `destination` is the real sink as a process with its diary of events, `traffic` hands
mail in; `limits` says which limits there are and whose mail each of them counts, `kept` judges a diary by them. The
trials: `rates` (every kind of limit), `fairness` (priorities and shares), `provider` (a rate that has to be learned).
"""
