"""Speed of Perdure as its users get it, beside other libraries on the same machine in the same run.

python -m benchmarks            5 pairs of runs, written to RESULTS.md; see __main__.py
python -m benchmarks --quick    does everything still run? under a minute, says nothing about speed
python -m benchmarks growth     what a million waiting and a million closed jobs cost, about 8 minutes
python -m benchmarks.soak       field cases in real time, a quarter of an hour
python -m benchmarks.profile    where the time of a server and a worker goes
"""
