/* What list, show and the server say of a job, as rows of a sheet. */
#pragma once
#include "runs/store/store.h"
#include "src/base/sheet.h"

/* Recent tokens per second of a running job, the mean of another one; 0: not known. */
double job_speed(const struct job *j);
/* Writes the jobs of a list. db: the path of their database, or NULL. */
void put_jobs_json(struct json_writer *w, const struct job_list *jobs, const char *db);
/* Writes everything about a job: as an object, or (w NULL) as text on standard output. */
int  put_shown_job(struct json_writer *w, struct store *s, const struct job *j, struct err *e);
/* Adds the jobs of a list to counts, as store_counts has them of a whole store. */
void count_jobs(struct store_counts *n, const struct job_list *jobs);
/* Counts of jobs and tokens, as members of the open object or (w NULL) as a line on standard output.
 * estimate: store_estimate. */
void put_counts(struct json_writer *w, const struct store_counts *n, double estimate);
