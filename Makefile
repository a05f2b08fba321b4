# Everything sets itself up in .venv; nothing needs to be running.
PYTHON ?= python3
BIN := .venv/bin
SERVERS := postfix swaks libnet-ssleay-perl libsasl2-modules sasl2-bin dovecot-imapd

.DEFAULT_GOAL := help
.PHONY: help setup demo test servers check format bench docs clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: .venv/.ready  ## create .venv with everything pinned

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable '.[postgresql,mysql,fast,dev]'
	@touch $@

demo: setup  ## the whole story in half a minute
	@$(BIN)/posthouse demo $(ARGS)

test: setup  ## every test (brings its own PostgreSQL)
	$(BIN)/python -m pytest -n 3 --dist worksteal $(ARGS)

# "No configuration": Debian's own Postfix has nothing to start with. Another mail server is not replaced.
servers:  ## install the mail servers that tests talk to (Debian, as root)
	@dpkg-query --show --showformat '$${db:Status-Status}\n' $(SERVERS) 2>&1 | grep -qv '^installed$$' || exit 0; \
	echo 'postfix postfix/main_mailer_type select No configuration' | debconf-set-selections && \
	apt-get -qq update && \
	DEBIAN_FRONTEND=noninteractive apt-get -qq --yes --no-install-recommends --no-remove install $(SERVERS) >/dev/null

check: setup  ## lint, types, tidiness
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/tidy

format: setup  ## let ruff format and mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup  ## ratios in one run
	$(BIN)/python -m benchmarks $(ARGS)

docs: setup  ## write the generated parts of docs/ anew
	$(BIN)/python -m tests.tidy.generated --write

clean:  ## remove .venv and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build
