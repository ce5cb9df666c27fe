# Commands for development. On a fresh Debian 12 or 13 with a Swift toolchain and make, root can run any
# target first: the target installs the missing packages that it needs, and prints their names.

# The tools are linked statically with Swift's libraries, so they run where Swift is not installed.
# libstdc++, which only Swift's runtime uses, is linked statically as well, because loading it took
# a tenth of the time that a tool needs to start. lld packs relocations; the tools export no
# functions, and look for libraries in the system's folders only. C code is compiled with stack
# protectors, as in Debian's packages. Nothing in the tools depends on the folder in which they were built.
static := $(CURDIR)/.build/static
release := -c release --static-swift-stdlib --disable-local-rpath \
	-Xswiftc -use-ld=lld -Xswiftc '-L$(static)' -Xlinker --no-export-dynamic \
	-Xlinker -z -Xlinker pack-relative-relocs -Xlinker -z -Xlinker relro -Xlinker -z -Xlinker now \
	-Xlinker --build-id=none \
	-Xcc -fstack-protector-strong -Xcc '-ffile-prefix-map=$(CURDIR)=.' \
	-Xswiftc -file-prefix-map -Xswiftc '$(CURDIR)=.' \
	-Xswiftc -Xfrontend -Xswiftc -no-clang-module-breadcrumbs
tools := .build/release/blesec .build/release/blesec-bench

.DEFAULT_GOAL := help
.PHONY: install dist deb help bench test debian13 lab check check-release report format docs clean ready ready-deb ready-python ready-lab release tests
# These variables add the laboratory's tests and the fuzz targets to the package. The scripts that
# need these variables set them. In the caller's environment they would change every build.
unexport BLESEC_LAB BLESEC_FUZZ

help:
	@echo 'make bench    measure throughput and round trips, print a table'
	@echo 'make release  build the two commands, stripped, into .build/release'
	@echo 'make install  install the two commands, with manuals and completion: PREFIX=/usr/local DESTDIR='
	@echo 'make deb      make a Debian package; the last line is its path'
	@echo 'make dist     make an archive of the sources; the last line is its path'
	@echo 'make test     build, and run all tests that need no Bluetooth'
	@echo 'make debian13 run the same tests on Debian 13, in a root folder of its own'
	@echo 'make lab      run the Bluetooth tests on a virtual machine with virtual controllers'
	@echo 'make check    what every change has to pass: format, builds, tests, docs, package, three suites of the lab'
	@echo 'make check-release   run make check, and what takes too long for every change: sanitizers, campaigns'
	@echo 'make report   measure everything, and write docs/performance.md'
	@echo 'make format   format the sources'
	@echo 'make docs     build the documentation, into .build/docs'
	@echo 'make clean    remove all that was built'

bench: release
	@.build/release/blesec-bench $(BENCH)

# Installs what `make release` has built; needs no compiler.
PREFIX ?= /usr/local
install:
	@tools/install-files "$(DESTDIR)" "$(PREFIX)"

deb: ready-deb release
	@tools/deb

dist: version = $(shell sed -n 's/^## \[\([0-9.]*\)\].*/\1/p' CHANGELOG.md | head -n 1)
dist: archive = .build/blesec-$(version).tar.gz
dist: ready
	@git -c tar.tar.gz.command='gzip -9n' -c tar.umask=0022 -c core.autocrlf=false archive --format=tar.gz --prefix=blesec-$(version)/ -o $(archive).new HEAD
	@mv $(archive).new $(archive)
	@echo $(archive)

test: tests
	@tools/run-tests -- swift test --skip-build --disable-xctest --no-parallel $(TEST)

debian13: release
	@tools/debian13

lab: ready-lab ready-python release
	@Tests/Lab/run $(SUITES)

check: ready-lab
	@tools/install --check
	@tools/check

check-release: check
	@tools/check --rest
	@Tests/Campaigns/run

report: ready-lab release
	@tools/install --report
	@tools/report

format: ready
	swift format -i -r Package.swift Sources Tests $(wildcard Examples Fuzz)

docs: ready
	@tools/docs

# Files in .build/debian13, the root folder of Debian 13, may belong to other users; tools/debian13 can
# remove them.
clean:
	@[ ! -e .build/debian13 ] || tools/debian13 --remove
	rm -rf .build

ready:
	@tools/install

ready-python:
	@tools/install --python

ready-deb:
	@tools/install --deb

ready-lab:
	@lab/install

release: ready
	@mkdir -p '$(static)'
	@ln -sf "$$(g++ -print-file-name=libstdc++.a)" '$(static)'
	swift build $(release)
	@tools/separate-debug $(tools)

tests: ready-python
	swift build --build-tests
