import sys, time
from collections import Counter
from tests.sim.plan import parse
from tests.sim.world import run
if sys.argv[1]=="-n":
    a,b=int(sys.argv[2]),int(sys.argv[3]); t0=time.perf_counter(); c=Counter(); fails=Counter()
    for seed in range(a,b):
        r=run(parse(str(seed)+"".join(sys.argv[4:])))
        c.update(r.counts)
        if r.rule:
            fails[r.rule]+=1
            if fails[r.rule]<4: print(seed, r.detail[:600])
    print(dict(c)); print(fails, (time.perf_counter()-t0)/(b-a))
else:
  for t in sys.argv[1:]:
    t0=time.perf_counter()
    r = run(parse(t), story=len(sys.argv)==2)
    if len(sys.argv)==2: print("\n".join(r.story[-400:]))
    print(r.plan); print(r.rule, r.detail, r.digest, r.steps, r.seconds, time.perf_counter()-t0)
    print(r.counts)
