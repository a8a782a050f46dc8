"""Two recommenders trained on implicit feedback and validated on the whole catalogue, in one process or in many.

Every rating is an interaction, whatever its stars. The latest item of every user with at least ``min_interactions``
different items is held out; the model ranks every item of the catalogue that the user has not met in training, and
the held-out one should be on top. The checkpoint with the best ``val_ndcg@10`` is kept and reported, so the models'
numbers are those of the best epoch on these users: for a paper, hold out a further item as the test.

``log.py`` reads or simulates, ``data.py`` splits and makes batches, ``models.py`` holds the models and the baseline,
``cli.py`` the command line, ``report.py`` table and picture, ``demo.py`` runs both models one after the other.
"""
