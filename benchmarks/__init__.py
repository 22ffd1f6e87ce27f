"""Speed of Perdure as its users get it, beside other libraries on the same machine in the same run.

python -m benchmarks            5 pairs of runs, written to RESULTS.md; see __main__.py
python -m benchmarks --quick    does everything still run? under a minute, says nothing about speed
python -m benchmarks.profile    where the time of a server and a worker goes
"""
