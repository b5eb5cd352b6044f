#include "trainctl/cli/cli.h"

int main(int argc, char** argv) { return trainctl::cli_main(argc, argv); }
