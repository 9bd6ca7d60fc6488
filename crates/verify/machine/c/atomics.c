/* Atomic operations of code that the compiler has instrumented (rustc -Cpasses=tsan): each tells
 * the machine first which memory it accesses. The functions are those of ThreadSanitizer's runtime
 * library (compiler-rt, tsan_interface_atomic.h). All memory orders are the strongest. */
#include <stdbool.h>
#include <stdint.h>

/* Threads have processors. */
extern bool simulated_observes;
extern void simulated_access(uintptr_t address, bool writes, uintptr_t code);

static inline void access(const volatile void *at, bool writes, const void *code)
{
	if (__atomic_load_n(&simulated_observes, __ATOMIC_RELAXED))
		simulated_access((uintptr_t)at, writes, (uintptr_t)code);
}

#define CODE __builtin_return_address(0)

#define FETCH(bits, type, name)                                                                \
	type __tsan_atomic##bits##_fetch_##name(volatile type *at, type value, int order)      \
	{                                                                                      \
		(void)order;                                                                   \
		access(at, true, CODE);                                                        \
		return __atomic_fetch_##name(at, value, __ATOMIC_SEQ_CST);                     \
	}

#define ATOMICS(bits, type)                                                                    \
	type __tsan_atomic##bits##_load(const volatile type *at, int order)                    \
	{                                                                                      \
		(void)order;                                                                   \
		access(at, false, CODE);                                                       \
		return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                  \
	}                                                                                      \
	void __tsan_atomic##bits##_store(volatile type *at, type value, int order)             \
	{                                                                                      \
		(void)order;                                                                   \
		access(at, true, CODE);                                                        \
		__atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                 \
	}                                                                                      \
	type __tsan_atomic##bits##_exchange(volatile type *at, type value, int order)          \
	{                                                                                      \
		(void)order;                                                                   \
		access(at, true, CODE);                                                        \
		return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                       \
	}                                                                                      \
	type __tsan_atomic##bits##_compare_exchange_val(volatile type *at, type expected,      \
							type value, int order, int failure)    \
	{                                                                                      \
		(void)order;                                                                   \
		(void)failure;                                                                 \
		access(at, true, CODE);                                                        \
		__atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST,     \
					    __ATOMIC_SEQ_CST);                                 \
		return expected;                                                               \
	}                                                                                      \
	FETCH(bits, type, add)                                                                 \
	FETCH(bits, type, sub)                                                                 \
	FETCH(bits, type, and)                                                                 \
	FETCH(bits, type, or)                                                                  \
	FETCH(bits, type, xor)

ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)

void __tsan_atomic_thread_fence(int order)
{
	(void)order;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void __tsan_atomic_signal_fence(int order)
{
	(void)order;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}
