// Everything, for those who like one include. cache.hpp is where to start reading.
#pragma once

#include "terrace/cache.hpp"
#include "terrace/units.hpp"
