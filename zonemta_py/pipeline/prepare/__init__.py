"""From a list of recipients to the plan of a campaign: pure steps, DataFrame → DataFrame, put together in `plan`."""
