/* A pool of threads for parallel regions.
 *
 * A region is one 64-bit word: generation (upper half) and pieces not yet claimed (lower half).
 * Pieces are claimed by compare-and-swap; a second counter says how many are finished. The caller
 * works too and waits for *pieces*, so a worker that lost its core costs nothing unless it holds
 * one. Workers spin for a short while, then sleep on a condition variable. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/base.h"

#define SPINS 20000

struct pool {
    eqf_ctx *ctx;
    int threads, started;
    pthread_t *handles;
    _Atomic u64 word; /* generation << 32 | pieces left */
    _Atomic i64 unfinished;
    _Atomic int sleepers;
    _Atomic bool quit;
    void (*body)(void *, i64);
    void *user;
    i64 parts;
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Runs pieces of the current region until none is left. */
static void work(pool *p)
{
    u64 w = atomic_load_explicit(&p->word, memory_order_acquire);
    while ((u32)w != 0) {
        if (!atomic_compare_exchange_weak_explicit(&p->word, &w, w - 1, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        i64 piece = p->parts - (i64)(u32)w;
        p->body(p->user, piece);
        atomic_fetch_sub_explicit(&p->unfinished, 1, memory_order_acq_rel);
        w = atomic_load_explicit(&p->word, memory_order_acquire);
    }
}

static void *worker(void *user)
{
    pool *p = user;
    for (;;) {
        int spin = 0;
        while ((u32)atomic_load_explicit(&p->word, memory_order_acquire) == 0 &&
               !atomic_load_explicit(&p->quit, memory_order_relaxed)) {
            if (++spin < SPINS) {
                relax();
                continue;
            }
            pthread_mutex_lock(&p->lock);
            atomic_fetch_add(&p->sleepers, 1);
            while ((u32)atomic_load(&p->word) == 0 && !atomic_load(&p->quit))
                pthread_cond_wait(&p->wake, &p->lock);
            atomic_fetch_sub(&p->sleepers, 1);
            pthread_mutex_unlock(&p->lock);
        }
        if (atomic_load(&p->quit))
            return NULL;
        work(p);
    }
}

/* Starts a worker. What is sent to the process is for the threads that the caller has of its own;
 * faults stay where they happen. */
static bool start(pool *p)
{
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t sent, before;
    sigfillset(&sent);
    for (i64 i = 0; i < COUNT_OF(faults); i++)
        sigdelset(&sent, faults[i]);
    pthread_sigmask(SIG_BLOCK, &sent, &before);
    bool started = pthread_create(&p->handles[p->started], NULL, worker, p) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    p->started += started;
    return started;
}

pool *pool_new(eqf_ctx *ctx, int threads)
{
    trap t;
    pool *volatile made = NULL;
    TRY(ctx, t)
    {
        pool *p = heap_alloc(ctx, sizeof *p);
        memset(p, 0, sizeof *p);
        made = p;
        p->ctx = ctx;
        p->threads = MAX(threads, 1);
        pthread_mutex_init(&p->lock, NULL);
        pthread_cond_init(&p->wake, NULL);
        p->handles = heap_alloc(ctx, (i64)sizeof(pthread_t) * p->threads);
        for (int i = 1; i < p->threads; i++)
            if (!start(p))
                eqf_throw(ctx, EQF_E_MACHINE, NULL, NULL, "cannot start a thread");
    }
    if (t.status == EQF_OK)
        return made;
    pool_free(made);
    return NULL;
}

void pool_free(pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->quit, true);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->started; i++)
        pthread_join(p->handles[i], NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    heap_free(p->ctx, p->handles, (i64)sizeof(pthread_t) * p->threads);
    heap_free(p->ctx, p, sizeof *p);
}

int pool_threads(const pool *p)
{
    return p ? p->threads : 1;
}

void pool_run(pool *p, i64 parts, void (*body)(void *user, i64 piece), void *user)
{
    if (!p || p->started == 0 || parts <= 1 || parts > UINT32_MAX) {
        for (i64 i = 0; i < parts; i++)
            body(user, i);
        return;
    }
    p->body = body;
    p->user = user;
    p->parts = parts;
    atomic_store_explicit(&p->unfinished, parts, memory_order_relaxed);
    u64 generation = (atomic_load(&p->word) >> 32) + 1;
    atomic_store(&p->word, generation << 32 | (u64)parts);
    if (atomic_load(&p->sleepers) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
    work(p);
    for (int spin = 0; atomic_load_explicit(&p->unfinished, memory_order_acquire) > 0;)
        if (++spin < SPINS)
            relax();
        else
            sched_yield();
}
