/* The part of a page about several jobs, before the sections of the jobs. */
#pragma once
#include "runs/report/report.h"

/* The table of the groups of --by. */
void report_by(FILE *f, const struct reports *l);
/* Heading, groups, curves of at most 12 jobs or groups in the same plots, and the table of all jobs. Jobs are
 * links when there are at most sections_max. False: no memory. */
bool report_overview(FILE *f, const struct reports *l, size_t sections_max);
