/* replay: what a fuzz target needs besides LLVMFuzzerTestOneInput. With EQF_LIBFUZZER the fuzzer
 * brings its own main; without it this one runs the target on every file of the folders and files
 * named on the command line, so that crashes found once stay found in plain builds. */
#ifndef FUZZ_REPLAY_H
#define FUZZ_REPLAY_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifndef EQF_LIBFUZZER
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return 0;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    /* Exactly as large as the input: reading past it shows under the sanitizers. */
    uint8_t *data = malloc(n > 0 ? (size_t)n : 1);
    size_t got = n > 0 ? fread(data, 1, (size_t)n, f) : 0;
    fclose(f);
    LLVMFuzzerTestOneInput(data, got);
    free(data);
    return 1;
}

int main(int argc, char **argv)
{
    int seen = 0;
    for (int i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        if (!d) {
            seen += replay_file(argv[i]);
            continue;
        }
        for (struct dirent *e; (e = readdir(d)) != NULL;) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
                seen += replay_file(path);
        }
        closedir(d);
    }
    printf("%d inputs\n", seen);
    return seen == 0; /* an empty corpus is a mistake in the call */
}
#endif
#endif
