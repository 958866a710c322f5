# Install rules, the version file and herdConfig.cmake:
#   find_package(herd 0.1 REQUIRED COMPONENTS core torch)   ->   herd::herd_core, herd::herd_torch
# A minor version may break the interface while the major one is 0, hence SameMinorVersion, and SOVERSION 0.1.
include(CMakePackageConfigHelpers)
set(herd_config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/herd)

# herd_install(COMPONENT TARGET): library, public headers and an export set of its own, so that core needs no torch.
function(herd_install component target)
  install(TARGETS ${target} EXPORT herd_${component}_targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT herd_${component}_targets NAMESPACE herd:: DESTINATION ${herd_config_folder}
    FILE herd_${component}Targets.cmake)
endfunction()

# A static herd hands its private dependencies on; they are found again by pkg-config, which the export can't say.
if(BUILD_SHARED_LIBS)
  herd_install(core herd_core)
  if(HERD_TORCH)
    herd_install(torch herd_torch)
  endif()
  configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/herdConfig.cmake.in ${PROJECT_BINARY_DIR}/herdConfig.cmake
    INSTALL_DESTINATION ${herd_config_folder})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/herdConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/herdConfig.cmake ${PROJECT_BINARY_DIR}/herdConfigVersion.cmake
    DESTINATION ${herd_config_folder})

  # For builds without CMake: pkg-config --cflags --libs herd_core.
  set(herd_pkgconfig_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  file(RELATIVE_PATH herd_prefix_from_pkgconfig ${CMAKE_INSTALL_PREFIX}/${herd_pkgconfig_folder}
    ${CMAKE_INSTALL_PREFIX})
  configure_file(${CMAKE_CURRENT_LIST_DIR}/herd_core.pc.in ${PROJECT_BINARY_DIR}/herd_core.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/herd_core.pc DESTINATION ${herd_pkgconfig_folder})
endif()
