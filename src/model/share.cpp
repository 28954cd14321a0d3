#include "model/share.h"
