/* A main for fuzz targets without libFuzzer: feeds each file of the given directories (or files) to
 * LLVMFuzzerTestOneInput, in order of name. Prints "N passed, 0 failed"; a fault ends the process. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return 0;
    size_t size = 0, cap = 1 << 16;
    uint8_t *data = malloc(cap);
    while (data) {
        size_t got = fread(data + size, 1, cap - size, f);
        size += got;
        if (got == 0)
            break;
        if (size == cap) {
            cap *= 2;
            uint8_t *grown = realloc(data, cap);
            if (!grown)
                free(data);
            data = grown;
        }
    }
    fclose(f);
    if (!data)
        return 0;
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 1;
}

int main(int argc, char **argv)
{
    int passed = 0;
    for (int i = 1; i < argc; i++) {
        struct dirent **entries;
        int n = scandir(argv[i], &entries, NULL, alphasort);
        if (n < 0) {
            passed += replay(argv[i]);
            continue;
        }
        for (int k = 0; k < n; k++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", argv[i], entries[k]->d_name);
            if (entries[k]->d_name[0] != '.')
                passed += replay(path);
            free(entries[k]);
        }
        free(entries);
    }
    printf("%d passed, 0 failed\n", passed);
    return passed == 0;
}
