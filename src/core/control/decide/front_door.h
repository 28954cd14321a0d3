// The front door of the endpoints as tables: what a snapshot stores, and what gateways are sent.
#pragma once

#include "core/control/state.h"

namespace billow::control {

FrontDoorImage image_of(const FrontDoor& door);
FrontDoor restore_front_door(FrontDoorImage image);

}  // namespace billow::control
