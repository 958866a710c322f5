# Install rules, the version file and herdConfig.cmake.
