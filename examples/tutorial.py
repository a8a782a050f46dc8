# %% [markdown]
# # One sitting: from training to a decision
#
# A recommender is trained. Does it replace the one that runs today? On the way: how sure the numbers are, which of two
# models is better, whom it serves badly, how much changes for users, what popularity adds, and a report for those who
# were not there. The computer needs a minute, the reader half an hour.
#
# In a clone of the repository: `pip install -e ".[fast,offline,stats,plot]" jupyterlab`, then open
# `examples/tutorial.ipynb`. Set `MOVIELENS` to a folder that holds `ratings.csv` and `movies.csv` of
# [MovieLens](https://grouplens.org/datasets/movielens/); without it a smaller log of the same kind is simulated, and
# what is said of numbers below may not hold for it. `docs/tutorial.md` has the numbers of MovieLens.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from examples.movielens.log import read_log, simulate_log
from torch_recmetrics import (
    NDCG,
    GroupExposure,
    Recall,
    Sliced,
    pad_ids,
    popularity_propensities,
    rank,
    ranking_metrics,
)
from torch_recmetrics.compare import Gate, compare
from torch_recmetrics.offline import evaluate

# %% [markdown]
# ## The data
#
# Of each user the first 80 % of the events train, the next 10 % choose the epoch (validation), and the last 10 % judge
# (test). Nothing is chosen by the test data.

# %%
folder = os.environ.get("MOVIELENS")
log = read_log(folder) if folder else simulate_log()
num_users, num_items = log.num_users, log.num_items
by_time = np.lexsort((log.times, log.user_ids))
users, items = log.user_ids[by_time], log.item_ids[by_time]
length = np.bincount(users, minlength=num_users)
place = (np.arange(len(users)) - (length.cumsum() - length)[users]) / length[users]  # 0 to 1, in the user's own time
train, test = place < 0.8, place >= 0.9


def lists_of(rows):
    """(users, longest list): the items of each user in these rows, padded with -1."""
    ends = np.bincount(users[rows], minlength=num_users).cumsum()
    return pad_ids((torch.from_numpy(items[rows]), torch.from_numpy(np.append(0, ends))))


seen, chooses = lists_of(train), lists_of(~train & ~test)
seen_by_test, wanted = lists_of(~test), lists_of(test)
item_counts = torch.from_numpy(np.bincount(items[train], minlength=num_items))
print(f"{len(users):,} events of {num_users:,} users and {num_items:,} items; {test.sum():,} are to be found")

# %% [markdown]
# ## Train
#
# A trained model must beat what needs no training. So two models come first: `popular`, the most frequent items for
# everybody, and `neighbours`, the items whose users are most like those of the items that a user knows (cosine).
#
# The trained one is a denoising autoencoder: it is shown half of what a user knows, and learns to name all of it. After
# each epoch the metric ranks the validation data; `seen_ids` hides what a user knows. The interval comes from the same
# sums as the value.

# %%
met = torch.zeros(num_users, num_items)
met[users[train], items[train]] = 1
popular = item_counts.double().expand(num_users, -1)
columns = normalize(met, dim=0)
neighbours = met @ (columns.T @ columns).fill_diagonal_(0)

torch.manual_seed(0)
encoder, decoder = nn.Linear(num_items, 64), nn.Linear(64, num_items)
nn.init.normal_(encoder.weight, std=0.05)
decoder.bias.data = (item_counts + 1.0).log()
net = nn.Sequential(nn.Dropout(0.5), encoder, nn.Tanh(), decoder)
optimizer = torch.optim.AdamW(net.parameters(), 2e-3)
inputs, metric, curve, autoencoder = normalize(met), NDCG(top_k=10), [], None
for _ in range(16):
    net.train()
    for batch in torch.randperm(num_users).split(64):
        loss = cross_entropy(net(inputs[batch]), met[batch] / met[batch].sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        scores = net(inputs)
    metric.reset()
    metric.update(scores, target_ids=chooses, seen_ids=seen)
    curve.append([float(number) for number in (metric.compute(), *metric.confidence_interval(level=0.95))])
    if curve[-1] == max(curve):
        autoencoder = scores
models = {"popular": popular, "neighbours": neighbours, "autoencoder": autoencoder}
print(f"best epoch: {curve.index(max(curve)) + 1} of {len(curve)}, NDCG@10 on validation {max(curve)[0]:.4f}")

# %% [figure epochs] NDCG on the validation data by epoch with its 95 % interval, beside that of the popular items
value, low, high = np.transpose(curve)
epochs = np.arange(1, len(curve) + 1)
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.fill_between(epochs, low, high, alpha=0.25, label="95 % interval")
axes.plot(epochs, value, marker=".", label="autoencoder")
axes.axhline(float(NDCG(10)(popular, target_ids=chooses, seen_ids=seen)), color="0.4", linestyle="--", label="popular")
axes.set(xlabel="epoch", ylabel="NDCG@10 on validation", ylim=(0, None))
axes.legend(frameon=False, loc="lower right")
plt.show()

# %% [markdown]
# The last epochs lie within one band: which of them is best is mostly chance.
#
# ## How good, and how sure?
#
# Now the test data. `ranking_metrics` ranks once for all metrics. `keep_users=True` keeps the value of each user, which
# the questions below need.

# %%
runs = {}
for name, scores in models.items():
    metrics = ranking_metrics(("ndcg", "recall", "hit_rate"), top_k=10, keep_users=True)
    metrics.update(scores, target_ids=wanted, seen_ids=seen_by_test, sample_ids=torch.arange(num_users))
    runs[name] = metrics.users().with_lists(rank(scores, seen_ids=seen_by_test, top_k=10).item_ids)
    values, intervals = metrics.compute(), metrics.confidence_intervals(level=0.95)
    print(
        f"{name:<11}", *(f"{key} {values[key]:.4f} [{low:.4f}, {high:.4f}]" for key, (low, high) in intervals.items())
    )

# %% [markdown]
# ## Which is better?
#
# Whether two intervals overlap does not answer that: both are of the same users. `compare` takes differences user by
# user. `p` is how often chance alone gives so large a difference; `p (holm)` is raised, since four rows are tested.

# %%
table = compare(runs, baseline="neighbours", metrics=("ndcg@10", "recall@10"))
print(table)

# %% [figure compare] Differences from the neighbours in NDCG and recall, with their 95 % intervals
figure, axes = plt.subplots(figsize=(7, 2.4), layout="constrained")
table.plot(axes)
plt.show()

# %% [markdown]
# `popular` is worse beyond chance. The autoencoder and the neighbours cannot be told apart: the corrected p is above
# 0.05, and the last column says how many users would show a difference of this size.
#
# ## Who is served badly?
#
# A mean hides groups. `Sliced` has the value of each group from one pass: here three groups of about equal size, by the
# number of known events. Groups always differ a little, so look at their intervals.

# %%
amount = torch.from_numpy(np.bincount(users[~test], minlength=num_users)).double()
edges = amount.quantile(torch.tensor([1 / 3, 2 / 3], dtype=torch.float64))
slice_ids = torch.bucketize(amount, edges)
groups, slices = ("least", "middle", "most"), {}
print(f"least: up to {edges[0]:.0f} known events, middle: up to {edges[1]:.0f}")
for name, scores in models.items():
    slices[name] = Sliced(NDCG(top_k=10), slices=groups)
    slices[name].update(scores, target_ids=wanted, seen_ids=seen_by_test, slice_ids=slice_ids)
    print(f"{name:<11}", *(f"{group}: {value:.4f} " for group, value in slices[name].compute().items()))

# %% [figure slices] NDCG of the three models for users with few, some and many known events, with 95 % intervals
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for shift, (name, metric) in enumerate(slices.items()):
    values, (low, high) = metric.compute().values(), zip(*metric.confidence_interval().values())
    places = [at + shift / 5 - 0.2 for at in range(len(groups))]
    axes.vlines(places, low, high, color=f"C{shift}")
    axes.plot(places, list(values), "o", color=f"C{shift}", label=name)
axes.set_xticks(range(len(groups)), groups)
axes.set(xlabel="how much is known of a user", ylabel="NDCG@10, 95 % interval", ylim=(0, None))
axes.legend(frameon=False, ncols=3, loc="lower center")
plt.show()

# %% [markdown]
# ## How much changes?
#
# The second table of `compare` says how alike the lists of two models are: `overlap@10` is the share of the ten items
# that both show; RBO gives the top more weight. `GroupExposure` says where the users' attention goes: here to the
# hundred most popular items, the next four hundred, and all others.

# %%
by_popularity = torch.bucketize(item_counts.argsort(descending=True).argsort(), torch.tensor([100, 500]), right=True)
for name, run in runs.items():
    exposure = GroupExposure(by_popularity, top_k=10, names=("first 100", "next 400", "others"))
    exposure.update(item_ids=pad_ids(run.lists))
    print(f"{name:<11}", *(f"{group}: {share:.4f} " for group, share in exposure.compute().items()))

# %% [markdown]
# ## What does popularity add?
#
# Users meet popular items more often, whatever is recommended. So the test data has them more often too. Each item can
# be weighed by 1 / the chance that it is met (its propensity), so that a rare one counts more. That chance is guessed
# from how often the item is in the training data. `gamma` is how strongly it depends on that. Nobody knows it, so try
# several; with -1 all items have the same chance, which is plain recall. `max_weight` is the most that an item counts.

# %%
gammas, corrected = (-1.0, 0.0, 1.0), {}
for name, scores in models.items():
    for gamma in gammas:
        propensities = popularity_propensities(item_counts.clamp(min=1), gamma=gamma)
        recall = Recall(top_k=10, propensities=propensities, max_weight=100.0)
        recall.update(scores, target_ids=wanted, seen_ids=seen_by_test)
        corrected[name, gamma] = [float(number) for number in (recall.compute(), *recall.confidence_interval())]
    print(f"{name:<11}", *(f"gamma {gamma:g}: {corrected[name, gamma][0]:.4f} " for gamma in gammas))

# %% [figure popularity] Recall of the three models, as counted and under two propensities, with 95 % intervals
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for shift, name in enumerate(models):
    value, low, high = zip(*(corrected[name, gamma] for gamma in gammas))
    places = [at + shift / 5 - 0.2 for at in range(len(gammas))]
    axes.vlines(places, low, high, color=f"C{shift}")
    axes.plot(places, value, "o", color=f"C{shift}", label=name)
axes.set_xticks(range(len(gammas)), ["as counted", "gamma 0", "gamma 1"])
axes.set(xlabel="how strongly popular items are favoured", ylabel="recall@10, 95 % interval", ylim=(0, None))
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# All values fall: a part of each was popularity. Under each `gamma` both models stay above `popular`, so they also find
# what is rare.
#
# ## Does it go live?
#
# A gate is a rule that is fixed before the numbers are seen. Here: NDCG must be better, and recall at most 5 % worse,
# each with its whole interval, not with its value alone. A rule that failed rejects the candidate; one that the data
# cannot decide says about how many users would decide it.

# %%
gate = Gate(better=("ndcg@10",), not_worse={"recall@10": 0.05})
for candidate, incumbent in (("neighbours", "popular"), ("autoencoder", "neighbours")):
    print(f"{candidate} in place of {incumbent}:", gate.decide(runs[candidate], runs[incumbent]), end="\n\n")

# %% [markdown]
# With MovieLens the second decision is open: 671 users are too few for so small a difference. That is an answer too.
# A gate may decide what the table of `compare` leaves open, as on the simulated log: that corrects p for its four rows,
# the gate for its two rules alone.
#
# ## The report
#
# Those who were not there get one page with values, intervals, counts and users. `evaluate` reads files and frames with
# ids of any type. NDCG and recall are those of the autoencoder above, this time from files.


# %%
def frame(lists):
    """A row for each user and item."""
    rows = [(user, item, place) for user, ids in enumerate(lists) for place, item in enumerate(ids, 1) if item >= 0]
    return pd.DataFrame(rows, columns=["user_id", "item_id", "rank"])


frame(runs["autoencoder"].lists).to_parquet("lists.parquet")
frame(wanted.tolist()).drop(columns="rank").to_parquet("test.parquet")
user_slices = pd.DataFrame({"user_id": range(num_users), "slice": [groups[at] for at in slice_ids]})
report = evaluate("lists.parquet", "test.parquet", ("ndcg", "recall"), top_k=10, rank="rank", slices=user_slices)
page = report.to_html("report.html")
print(report)

# %% [markdown]
# `report.html` lies in the folder in which this runs; open it in a browser. On the command line, without slices:
# `torch-recmetrics evaluate --recommendations lists.parquet --truth test.parquet
# --rank rank -m ndcg -m recall -k 10 --report out/`.
#
# Next: [which metric](../docs/which_metric.md) is yours, the same in [Lightning](../docs/lightning.md), and what
# [compare](../docs/compare.md), [exposure](../docs/exposure.md) and [propensities](../docs/unbiased.md) assume.
