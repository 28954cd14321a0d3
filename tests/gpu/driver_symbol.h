// Finds a function of the driver past everything that is preloaded.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstring>

// The driver's own function: the library's symbol table says where it is, whatever is preloaded.
inline void* driver_function(const char* name) {
  struct Search {
    const char* name;
    void* found;
  } search{name, nullptr};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* wanted = static_cast<Search*>(data);
        if (!info->dlpi_name || !std::strstr(info->dlpi_name, "/libcuda.so"))
          return 0;
        const ElfW(Sym)* symbols = nullptr;
        const char* names = nullptr;
        for (int i = 0; i < info->dlpi_phnum; i++)
          if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            for (auto* d =
                     reinterpret_cast<ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
                 d->d_tag != DT_NULL; d++) {
              if (d->d_tag == DT_SYMTAB)
                symbols = reinterpret_cast<const ElfW(Sym)*>(d->d_un.d_ptr);
              if (d->d_tag == DT_STRTAB)
                names = reinterpret_cast<const char*>(d->d_un.d_ptr);
            }
        // The table of names follows the table of symbols.
        for (auto* s = symbols; s && names && reinterpret_cast<const char*>(s + 1) <= names; s++)
          if (s->st_shndx != SHN_UNDEF && !std::strcmp(names + s->st_name, wanted->name))
            wanted->found = reinterpret_cast<void*>(info->dlpi_addr + s->st_value);
        return 1;
      },
      &search);
  return search.found;
}
