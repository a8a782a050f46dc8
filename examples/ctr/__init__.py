"""A factorisation machine that predicts clicks, stopped early on the AUC within each user.

The first rows of the log train, the last validate. Validation logs everything that ``ctr_metrics`` has in one line; the
checkpoint with the best ``val_group_auc`` is kept and reported, with its ROC and precision-recall curves.

``log.py`` reads or simulates, ``data.py`` turns columns into codes, ``model.py`` is the machine, ``cli.py`` the command
line, ``report.py`` table and pictures.
"""
