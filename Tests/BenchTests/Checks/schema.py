#!/usr/bin/python3
"""schema.py SCHEMA FILE: checks the JSON in FILE against the schema, and prints each mismatch."""

import json
import sys

import jsonschema

with open(sys.argv[1], encoding="utf-8") as file:
    schema = json.load(file)
with open(sys.argv[2], encoding="utf-8") as file:
    document = json.load(file)
jsonschema.Draft202012Validator.check_schema(schema)
errors = list(jsonschema.Draft202012Validator(schema).iter_errors(document))
for error in errors:
    print(error.json_path, error.message)
sys.exit(1 if errors else 0)
