"""The CPU's own kernels in C++, and their binding. `scripts/setup` builds them where a compiler is
installed; without them the same models run on torch.

| file | what it has |
| --- | --- |
| packed.h, pack.cpp | weights of 4 to 8 bits in the order the products read them |
| linear.cpp | products of such weights with inputs quantized to int8 |
| attention.cpp | causal attention over the paged cache |
| decoder_step.cpp | a whole forward step: all threads through one list of operations |
| threads.h, lanes.h, half.h | the thread pool, eight floats at a time, float16 |
| api.cpp | the functions that `library.py` calls |
"""
