"""What the raw rows of a session mean: the next point, figures, noise, the verdict and the report.

`schedule` and `points` are pure Python, so that the runner can use them; scipy is imported inside functions only.
"""
