# make            lists the targets
# make test       is all that a fresh clone needs

PYTHON := .venv/bin/python
PYTEST := $(PYTHON) -m pytest
# Three processes on two cores, as some tests wait; tests/order.py says which tests stay together.
PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder
NO_JVM := tests/unit tests/faults tests/closed_loop tests/simulation tests/outside tests/nightly pipelines benchmarks/arena benchmarks/balance_arena benchmarks/scale_out/model.py

# Tests start some hundred processes: without bytecode each would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help env test quick unit browser spark contract jvm servers nightly machines matrix lint types format proto bench bench-compare bench-million bench-scale-out bench-start bench-throttle bench-balance bench-page page-pictures site arena balance-arena pulsar-cluster pulsar-proof balance-proof kafka-proof overload soak-day lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 16

env: ## make .venv with everything that tests and tools need, if it is not there yet
	@./spark-submit.sh --setup test

test: env ## the whole suite
	$(PYTEST) $(PARALLEL) $(NO_JVM) tests/browser tests/spark tests/contract tests/servers tests/jvm

quick: lint types ## before each commit: ruff, mypy, and the tests that take no JVM, no server and no time
	$(PYTEST) $(PARALLEL) $(NO_JVM) -m "not slow" --hypothesis-profile=quick

unit: env ## tests and doctests that start no JVM
	$(PYTEST) $(PARALLEL) $(NO_JVM)

browser: env ## tests of the server's page in Chromium (apt-get install chromium; skipped without it)
	$(PYTEST) tests/browser

spark: env ## tests with one shared Spark session
	$(PYTEST) tests/spark

contract: env ## every transport against the one contract
	$(PYTEST) tests/contract

jvm: env ## throttle laws and balancing strategies beside Kafka's and Pulsar's own classes; the Kafka plugin
	$(PYTEST) --nightly tests/jvm

servers: env ## tests that start servers: Kafka, a Spark cluster
	$(PYTEST) tests/servers

nightly: env ## what takes too long for each commit, from where the last night stopped (HOURS=8 PARTS="fuzz outside"; the results page is docs/measured/nightly.md)
	$(PYTHON) -m tests.nightly $(PARTS) --hours $(or $(HOURS),8)

machines: env ## lose executors, nodes, stores, pods and leaders of real parts, by file, from where the last run stopped (25 minutes; the results page is docs/measured/machines.md)
	$(PYTHON) -m tests.nightly machines

matrix: env ## the quota job installed from a wheel, on versions of Spark, Python, Java and Kafka (an hour, 450 MB of downloads each)
	$(PYTHON) -m tests.matrix $(RUNS)

lint: env ## ruff's rules and its formatting
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types: env ## mypy --strict on the package
	$(PYTHON) -m mypy

format: env ## let ruff correct what it can
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

bench-throttle: env ## measure the throttle laws (minutes; the results page is docs/measured/throttle-benchmarks.md)
	$(PYTHON) -m benchmarks.throttle

bench-balance: env ## a round of the balancer beside Pulsar's classes, and the least that must be moved (twenty minutes; the results page is docs/measured/balance-benchmarks.md)
	$(PYTHON) -m benchmarks.balance_speed
	$(PYTHON) -m benchmarks.balance_bound

bench-page: env ## the page's questions with 100,000 groups and a week of history (a quarter of an hour, 5 GB in /tmp; the results page is docs/measured/page-benchmarks.md)
	$(PYTHON) -m benchmarks.page_speed

proto: env ## generate both wire/pb in pipelines/ from schemas/
	$(PYTHON) -m grpc_tools.protoc --proto_path=schemas --python_out=pipelines/quotaplane/wire/pb \
		--pyi_out=pipelines/quotaplane/wire/pb schemas/quotaplane.proto schemas/pulsar_resource_usage.proto
	$(PYTHON) -m grpc_tools.protoc --proto_path=schemas --python_out=pipelines/quotabalance/wire/pb \
		--pyi_out=pipelines/quotabalance/wire/pb schemas/balance.proto

bench: env ## the quota loop on a real Kafka (a quarter of an hour; the results page is docs/measured/benchmarks.md)
	./spark-submit.sh benchmarks/quota_loop.py --driver-memory 4g

bench-million: env ## a million groups (five minutes, 16 GB of memory; `make bench` puts them on its page)
	./spark-submit.sh benchmarks/quota_loop.py --driver-memory 6g --only million --rounds 3

bench-scale-out: env ## rounds of 100,000 to 3,000,000 groups on a Spark cluster, and a model for more (half an hour, 20 GB of memory; the results page is docs/measured/scale-out.md)
	$(PYTHON) -m benchmarks.scale_out

bench-start: env ## a start of the quota job, and `status` (two minutes; `make bench` puts them on its page)
	$(PYTHON) -m benchmarks.start

bench-compare: env ## the quota job of COMMIT and of the working tree in turn: make bench-compare COMMIT=main (20 minutes; `make bench` puts the table on its page)
	$(PYTHON) -m benchmarks.compare $(COMMIT) --keep docs/measured/benchmarks-pairs.json

overload: env ## job and enforcer under more load than they can carry, on a real Kafka and without (half an hour; the results page is docs/measured/overload.md)
	$(PYTHON) -m benchmarks.overload
	$(PYTHON) -m benchmarks.overload --without-spark
	$(PYTHON) -m benchmarks.overload.enforcer --topics-per-s 20
	$(PYTHON) -m benchmarks.overload.enforcer
	$(PYTHON) -m benchmarks.overload --page

soak-day: env ## a day of churn, kills, maintenance and a full disk in half an hour (root, for the small disk)
	$(PYTHON) -m benchmarks.soak_day

arena: env ## every law on every scenario, no JVM (some five minutes; the results page is docs/measured/arena.md)
	$(PYTHON) -m benchmarks.arena --jobs $(or $(JOBS),2)

balance-arena: env ## our balancer beside Pulsar's strategies (half an hour; the results page is docs/measured/balance-arena.md)
	$(PYTHON) -m benchmarks.balance_arena

pulsar-cluster: env ## run a stock Pulsar cluster of three brokers on loopback until Ctrl-C
	$(PYTHON) -m tests.servers.pulsar_cluster

pulsar-proof: env ## stock Pulsar's calculator and ours on a real cluster (half an hour; the results page is docs/measured/pulsar-proof.md)
	$(PYTHON) -m benchmarks.pulsar_proof

kafka-proof: env ## Kafka's own client quotas and ours on a real cluster (half an hour; the results page is docs/measured/kafka-proof.md)
	$(PYTHON) -m benchmarks.kafka_proof

balance-proof: env ## stock Pulsar's balancing and ours on a real cluster (an hour; the results page is docs/measured/balance-proof.md)
	$(PYTHON) -m benchmarks.balance_proof

site: env ## the documentation as a site in build/site; read it at http://127.0.0.1:8000
	$(PYTHON) -m zensical serve

page-pictures: env ## the pictures of docs/operate/page.md, in Chromium
	$(PYTHON) -m benchmarks.page_pictures

lock: env ## choose versions anew, with their hashes; needs uv
	$(PYTHON) deploy/lock.py

clean: ## remove what was made here; downloads in the user's cache stay
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis pipelines/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
