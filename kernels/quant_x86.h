/* The vectors of quant_impl.h that AVX2 and AVX-512 have under the same names. A twin defines qf, qi
 * and qh; MM(name), an intrinsic of its width; MM_ALL(name), one of whole registers; as_floats, which keeps
 * the bits; and load_half and load_quarter, which load so much of a register. */
static inline qf qf_zero(void) { return MM(setzero_ps)(); }
static inline qf qf_load(const float *p) { return MM(loadu_ps)(p); }
static inline void qf_store(float *p, qf a) { MM(storeu_ps)(p, a); }
static inline qf qf_set1(float x) { return MM(set1_ps)(x); }
static inline qf qf_fma(qf a, qf b, qf c) { return MM(fmadd_ps)(a, b, c); }
static inline qf qf_mul(qf a, qf b) { return MM(mul_ps)(a, b); }
static inline qf qf_half(const char *p) { return MM(cvtph_ps)(load_half(p)); }
static inline qi qi_set1(int32_t x) { return MM(set1_epi32)(x); }
static inline qi qi_load(const char *p) { return MM_ALL(loadu)((const void *)p); }
static inline qi qi_srl(qi a, int n) { return MM(srli_epi32)(a, (unsigned)n); }
static inline qi qi_sra(qi a, int n) { return MM(srai_epi32)(a, (unsigned)n); }
static inline qi qi_sll(qi a, int n) { return MM(slli_epi32)(a, (unsigned)n); }
static inline qi qi_and(qi a, int32_t mask) { return MM_ALL(and)(a, MM(set1_epi32)(mask)); }
static inline qi qi_xor(qi a, qi b) { return MM_ALL(xor)(a, b); }
static inline qi qi_or(qi a, qi b) { return MM_ALL(or)(a, b); }
static inline qi qi_add(qi a, qi b) { return MM(add_epi32)(a, b); }
static inline qi qi_sub(qi a, qi b) { return MM(sub_epi32)(a, b); }
static inline qi qi_i8(const char *p) { return MM(cvtepi8_epi32)(load_quarter(p)); }
static inline qi qi_u8(const char *p) { return MM(cvtepu8_epi32)(load_quarter(p)); }
static inline qi qi_u16(const char *p) { return MM(cvtepu16_epi32)(load_half(p)); }
static inline qf qi_float(qi a) { return MM(cvtepi32_ps)(a); }
static inline qf qf_power(const char *p)     /* half of 2^(x - 127), which is subnormal for 0 alone */
{
    const qi x = qi_sll(qi_u8(p), 23);
    return qf_mul(as_floats(MM(max_epu32)(x, qi_set1(1 << 22))), qf_set1(0.5f));
}
static inline qh qh_load(const char *p) { return MM_ALL(loadu)((const void *)p); }
static inline void qh_store(char *p, qh a) { MM_ALL(storeu)((void *)p, a); }
static inline qh qh_widen(const char *p) { return MM(cvtepi8_epi16)(load_half(p)); }
static inline qh qh_srl(qh a, int n) { return MM(srli_epi16)(a, (unsigned)n); }
static inline qh qh_sll(qh a, int n) { return MM(slli_epi16)(a, (unsigned)n); }
static inline qh qh_and(qh a, int mask) { return MM_ALL(and)(a, MM(set1_epi16)((int16_t)mask)); }
static inline qh qh_sub(qh a, int x) { return MM(sub_epi16)(a, MM(set1_epi16)((int16_t)x)); }
static inline qh qh_mul(qh a, int n) { return MM(mullo_epi16)(a, MM(set1_epi16)((int16_t)n)); }
static inline qh qh_mul_high(qh a, int n) { return MM(mulhi_epu16)(a, MM(set1_epi16)((int16_t)n)); }
static inline qh qh_of(qi a) { return a; }
