from tests.support.triton_interpreter import accept_scalar_arrays

accept_scalar_arrays()
