#pragma once
#include "half.hpp"
