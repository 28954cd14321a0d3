// `billow simulate` as an executable of its own, for benchmarks that need nothing else of Billow.
#include "simulate/simulate.h"

int main(int argc, char** argv) {
  return billow::sched::simulate_main({argv + 1, argv + argc});
}
