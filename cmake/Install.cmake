# The installed package: headers, library, TerraceConfig.cmake, terrace.pc and the licence.
include(CMakePackageConfigHelpers)
set(terrace_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Terrace")
string(REPLACE ";" " " TERRACE_PC_REQUIRES "${TERRACE_MODULES}")

install(TARGETS terrace EXPORT TerraceTargets)
install(DIRECTORY include/terrace DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" PATTERN cuda.hpp EXCLUDE)
if(TARGET terrace_cuda)
  set_target_properties(terrace_cuda PROPERTIES EXPORT_NAME cuda)
  install(TARGETS terrace_cuda EXPORT TerraceTargets)
  install(FILES include/terrace/cuda.hpp DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/terrace")
endif()
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(EXPORT TerraceTargets NAMESPACE terrace:: DESTINATION "${terrace_package_dir}")

configure_package_config_file(cmake/TerraceConfig.cmake.in "${PROJECT_BINARY_DIR}/TerraceConfig.cmake"
                              INSTALL_DESTINATION "${terrace_package_dir}")
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/TerraceConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/TerraceConfig.cmake" "${PROJECT_BINARY_DIR}/TerraceConfigVersion.cmake"
        DESTINATION "${terrace_package_dir}")
file(RELATIVE_PATH TERRACE_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file(cmake/terrace.pc.in "${PROJECT_BINARY_DIR}/terrace.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/terrace.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
