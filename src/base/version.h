/* The version of a release. */
#pragma once
#define LONGHAND_VERSION "0.1.0"
