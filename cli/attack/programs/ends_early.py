"""Plants a module that ends the process with success when tests import it."""

from common import plant

plant("import os as _os\n_os._exit(0)\n")
