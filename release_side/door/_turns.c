/* The sum of `Turns` in one loop over rows: the same whole numbers as turns.py's, which says what they are. Never needed.

   Products and sums of float64 must be rounded one by one, so compile without contraction (-ffp-contract=off). */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define ENTRIES 65536
#define QUARTER (ENTRIES / 4)
#define HALF_ENTRY 32768
#define ANGLE 25736
#define PIECE 512 /* frequencies at a time: their phases stay near the processor */

typedef struct {
    const uint32_t *phases;
    Py_ssize_t rows;
} Table;

/* Floor of x / 2^bits, as a shift of negative numbers is not defined by the language. */
static inline int32_t shifted(int32_t x, int bits) { return x < 0 ? ~(~x >> bits) : x >> bits; }

static void add_row(const double *values, Py_ssize_t n_values, Py_ssize_t stride, const double *numbers,
                    const Py_ssize_t *codes, Py_ssize_t n_tables, const Table *tables, const int32_t *waves, int extra,
                    Py_ssize_t frequencies, int64_t *sums)
{
    double total[PIECE];
    uint32_t phases[PIECE];
    const int32_t half = (int32_t)1 << (extra - 1);
    for (Py_ssize_t start = 0; start < frequencies; start += PIECE) {
        const Py_ssize_t size = frequencies - start < PIECE ? frequencies - start : PIECE;
        for (Py_ssize_t r = 0; r < size; r++)
            total[r] = 0.0;
        for (Py_ssize_t j = 0; j < n_values; j++) {
            const double value = values[j * stride];
            const double *number = numbers + j * frequencies + start;
            for (Py_ssize_t r = 0; r < size; r++)
                total[r] += value * number[r];
        }
        for (Py_ssize_t r = 0; r < size; r++)
            phases[r] = (uint32_t)(uint64_t)llrint(total[r]) + HALF_ENTRY;
        for (Py_ssize_t t = 0; t < n_tables; t++) {
            const uint32_t *row = tables[t].phases + codes[t * stride] * frequencies + start;
            for (Py_ssize_t r = 0; r < size; r++)
                phases[r] += row[r];
        }
        for (Py_ssize_t r = 0; r < size; r++) {
            const uint32_t nearest = phases[r] >> 16;
            const int32_t angle = shifted(((int32_t)(phases[r] & 0xFFFF) - HALF_ENTRY) * ANGLE, 14);
            const int32_t sine = waves[nearest], cosine = waves[nearest + QUARTER];
            sums[start + r] += shifted(cosine - shifted(shifted(sine, 15) * angle, 15) + half, extra);
            sums[frequencies + start + r] += shifted(sine + shifted(shifted(cosine, 15) * angle, 15) + half, extra);
        }
    }
}

/* Whether an array has as many bytes as these counts of items of 8 or 4 bytes. */
static int has(const Py_buffer *array, Py_ssize_t many, Py_ssize_t each, Py_ssize_t size)
{
    return array->len == many * each * size;
}

static PyObject *add_rows(PyObject *module, PyObject *args)
{
    Py_buffer values, numbers, codes, waves, sums, *levels = NULL;
    PyObject *list;
    Table *tables = NULL;
    Py_ssize_t n_rows, frequencies, n_tables, n_values, held = 0;
    int extra, good;
    (void)module;
    if (!PyArg_ParseTuple(args, "nny*y*y*O!y*iw*", &n_rows, &frequencies, &values, &numbers, &codes, &PyList_Type, &list,
                          &waves, &extra, &sums))
        return NULL;
    n_tables = PyList_GET_SIZE(list);
    good = n_rows >= 0 && frequencies > 0 && extra > 0 && extra < 31;
    n_values = good ? numbers.len / (frequencies * 8) : 0;
    good = good && has(&numbers, n_values, frequencies, 8) && has(&values, n_values, n_rows, 8) &&
           has(&codes, n_tables, n_rows, sizeof(Py_ssize_t)) && has(&waves, ENTRIES + QUARTER, 1, 4) &&
           has(&sums, 2, frequencies, 8);
    levels = calloc((size_t)n_tables + 1, sizeof(Py_buffer));
    tables = calloc((size_t)n_tables + 1, sizeof(Table));
    good = good && levels && tables;
    for (; good && held < n_tables; held++) {
        if (PyObject_GetBuffer(PyList_GET_ITEM(list, held), &levels[held], PyBUF_SIMPLE)) {
            PyErr_Clear();
            good = 0;
            break;
        }
        tables[held].phases = levels[held].buf;
        tables[held].rows = levels[held].len / (frequencies * 4);
    }
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        const Py_ssize_t *code = codes.buf;
        for (Py_ssize_t t = 0; t < n_tables; t++)
            for (Py_ssize_t i = 0; i < n_rows; i++)
                good = good && code[t * n_rows + i] >= 0 && code[t * n_rows + i] < tables[t].rows;
        for (Py_ssize_t i = 0; good && i < n_rows; i++)
            add_row((const double *)values.buf + i, n_values, n_rows, numbers.buf, code + i, n_tables, tables, waves.buf,
                    extra, frequencies, sums.buf);
        Py_END_ALLOW_THREADS
    }
    while (held > 0)
        PyBuffer_Release(&levels[--held]);
    free(levels);
    free(tables);
    PyBuffer_Release(&values);
    PyBuffer_Release(&numbers);
    PyBuffer_Release(&codes);
    PyBuffer_Release(&waves);
    PyBuffer_Release(&sums);
    if (!good) {
        PyErr_SetString(PyExc_ValueError, "arrays do not fit each other.");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"add_rows", add_rows, METH_VARARGS, "Add the whole numbers of rows to sums, which must be writable."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_turns", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__turns(void) { return PyModule_Create(&module); }
