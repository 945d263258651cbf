"""Packages through the C interface: load, and run on torch tensors."""
import ctypes as c

import torch


class Tensor(c.Structure):
    _fields_ = [("name", c.c_char_p), ("dtype", c.c_int), ("rank", c.c_size_t),
                ("shape", c.POINTER(c.c_int64)), ("symbols", c.c_void_p), ("bytes", c.c_size_t),
                ("data", c.c_void_p)]


class Diag(c.Structure):
    _fields_ = [("status", c.c_int), ("file", c.c_char_p), ("place", c.c_char_p),
                ("message", c.c_char_p)]


class Library:
    def __init__(self, path):
        self.lib = lib = c.CDLL(str(path))
        p, size = c.c_void_p, c.c_size_t
        for name, result, arguments in [
                ("eqf_ctx_new", p, [p]),
                ("eqf_diag_get", Diag, [p, size]),
                ("eqf_model_load", c.c_int, [p, c.c_char_p, c.POINTER(p)]),
                ("eqf_model_input_count", size, [p]), ("eqf_model_input", Tensor, [p, size]),
                ("eqf_model_output_count", size, [p]), ("eqf_model_output", Tensor, [p, size]),
                ("eqf_exec_new", c.c_int, [p, p, c.c_int, c.POINTER(p)]),
                ("eqf_exec_run", c.c_int, [p, p, p])]:
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
        self.ctx = lib.eqf_ctx_new(None)

    def check(self, status):
        if status:
            d = self.lib.eqf_diag_get(self.ctx, 0)
            raise RuntimeError(f"{d.file.decode()}: {d.place.decode()}: {d.message.decode()}")

    def load(self, package, threads):
        return Package(self, package, threads)


class Package:
    """A loaded package with one f32 output; it and its library live as long as the process."""

    def __init__(self, library, path, threads):
        self.library, lib, p = library, library.lib, c.c_void_p
        self.model, self.exec = p(), p()
        library.check(lib.eqf_model_load(library.ctx, str(path).encode(), c.byref(self.model)))
        library.check(lib.eqf_exec_new(library.ctx, self.model, threads, c.byref(self.exec)))
        self.names = [lib.eqf_model_input(self.model, i).name.decode()
                      for i in range(lib.eqf_model_input_count(self.model))]
        if lib.eqf_model_output_count(self.model) != 1:
            raise RuntimeError(f"{path}: more than one output")
        out = lib.eqf_model_output(self.model, 0)
        self.output = torch.full([out.shape[i] for i in range(out.rank)], float("nan"))

    def bind(self, inputs):
        """A call that runs on `inputs`, {name: contiguous tensor}, and returns self.output."""
        p, run = c.c_void_p, self.library.lib.eqf_exec_run
        given = (p * len(self.names))(*(inputs[n].data_ptr() for n in self.names))
        taken = (p * 1)(self.output.data_ptr())

        def call():
            status = run(self.exec, given, taken)
            if status:
                self.library.check(status)
            return self.output

        return call
